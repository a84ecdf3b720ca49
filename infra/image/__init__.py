"""The images that jobs run: where they come from and how a cloud's registry gets them."""
