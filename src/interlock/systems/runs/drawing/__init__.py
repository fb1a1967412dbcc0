"""A run as a graph: in layers, as text for a terminal, as SVG, as Mermaid, as dot, and as data."""
