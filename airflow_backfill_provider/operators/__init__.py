"""The operators; import each from its module."""
