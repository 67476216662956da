"""The judge: checks a plan against its snapshot with code that shares nothing with the engine it judges."""
