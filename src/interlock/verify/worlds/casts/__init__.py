"""Who lives in a world: each cast is the real thing, with what it takes from its machine handed in."""
