"""The binder: carries out bind requests, keeps one reservation pod for every shared GPU (docs/concepts/binding.md)."""
