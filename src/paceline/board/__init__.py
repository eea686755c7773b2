"""A run as a page in the browser, served to this machine only. Never imports torch."""
