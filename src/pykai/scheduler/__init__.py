"""The live scheduler: watches -> cache -> decide -> writes."""
