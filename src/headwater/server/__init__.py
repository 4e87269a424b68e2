"""The HTTP server: OpenAI's and Anthropic's shapes over the Python API, with tenants and limits."""
