"""Thin programs: they read the options and call the library."""
