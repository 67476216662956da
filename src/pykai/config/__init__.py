"""Configuration and snapshot files, read into the values the engine takes; errors name the path of the field."""
