"""The engines behind the gateway: connections, state, choice."""
