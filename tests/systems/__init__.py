"""The systems that are built on the engine, from the outside and from the inside."""
