"""The server: one index over HTTP (`app`, `guard`, `metrics`, the web page in `page/`) and over MCP (`mcp`).

Knows nothing of how questions are answered or of how the index came to be.
"""
