"""agentload: a load-testing and chaos harness for multi-tenant LLM and agent gateways."""

__version__ = "0.1.0"
