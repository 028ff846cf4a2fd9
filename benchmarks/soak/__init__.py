"""``make soak``: mixed load on workers that are killed; what grows, and what is lost."""
