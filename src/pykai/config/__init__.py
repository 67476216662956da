"""Configuration files and flags, refused at the door with the path of the wrong field."""
