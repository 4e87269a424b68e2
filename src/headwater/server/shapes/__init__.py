"""The shapes of the APIs: from a body to what the engine is asked, from pieces to what is sent."""
