"""How fast the queue is, as ratios against plain pymongo on the same server in the same run."""
