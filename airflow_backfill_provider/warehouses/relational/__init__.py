"""What engines that speak SQL share: set-based statements, comparison by key, the steps of a replacement."""
