"""For Locust files whose users a profile plays (`locust: {file: users.py, class: ChatUser}`).

    from agentload.locust import marked

    class ChatUser(FastHttpUser):
        @task
        def ask(self):
            message = {"role": "user", "content": marked(self, "Why is the sky blue?", output_tokens=16)}
            self.client.post("/v1/chat/completions", json={"model": "fake-model", "messages": [message]})

The file stays a Locust file: under `locust -f users.py` a message is sent as it is.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

__all__ = ["Refused", "headers", "marked"]


class Refused(Exception):
    """What Locust's clients raise under agentload instead of sending (to a host that is not to be loaded, or
    after the run's end), or instead of hearing more of an answer that is too long. One line says which.
    """


@runtime_checkable
class Marking(Protocol):
    """What agentload gives each user that it plays, as its attribute `agentload`."""

    headers: dict[str, str]
    """What names the tenant to the target. They may hold keys."""

    def mark(self, text: str, output_tokens: int = 0) -> str:
        """The text behind a new marker."""
        ...


def marked(user: object, text: str, output_tokens: int = 0) -> str:
    """The text of a user message with the run's marker in front, so that our provider knows whose call it is.

    Mark the LAST user message of each request, anew for each. `output_tokens`: how many tokens our provider
    shall answer with (0..65535; 0 leaves it to `max_tokens`). A user that agentload does not play gets the
    text back as it is. Raises ValueError for a number out of range.
    """
    playing = getattr(user, "agentload", None)
    return playing.mark(text, output_tokens) if isinstance(playing, Marking) else text


def headers(user: object) -> dict[str, str]:
    """What names the user's tenant to the target, for a client of your own (an SDK, say) at `user.host`.

    `HttpUser` and `FastHttpUser` send them already. Empty for a user that agentload does not play.
    """
    playing = getattr(user, "agentload", None)
    return dict(playing.headers) if isinstance(playing, Marking) else {}
