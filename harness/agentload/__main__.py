"""`python -m agentload`."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from agentload.cli import app

    app()


if __name__ == "__main__":
    main()
