"""Composition roots: the `kai` command, its subcommands, and the components they assemble."""
