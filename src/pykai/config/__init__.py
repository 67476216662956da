"""Configuration files -> the values the engine takes; what is wrong is refused with the path of the field."""
