"""Networks, in plain torch. Nothing here knows of recipes, data or processes."""
