"""HTTP: requests become calls of the desk, and its answers responses. Rights are the desk's."""
