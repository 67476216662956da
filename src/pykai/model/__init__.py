"""The nouns as frozen values and columns: nothing but numpy and the standard library below it."""
