"""From words to objects: composes configs, and builds parts from them."""
