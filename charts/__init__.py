"""The Helm chart, and what is generated into it from the code: definitions, schema of values, roles."""
