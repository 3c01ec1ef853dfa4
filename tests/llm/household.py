"""The provider that the small model chooses tools of."""

from __future__ import annotations

from toolplug import FunctionProvider, tool


class Household(FunctionProvider):
    """Three tools. What they are for is shown by requests, as a small model needs it."""

    @tool(description="Tell the weather. Such as: Is it sunny in Rome? Such as: What is the weather in Madrid?")
    async def get_weather(self, city: str) -> str:
        return f"It is fine in {city}."

    @tool(description="Add two numbers. Such as: Add 1 and 2. Such as: What is 4 plus 5?")
    async def add_numbers(self, a: int, b: int) -> int:
        return a + b

    @tool(description="Send a mail. Such as: Send a mail to Dave: hello. Such as: Mail Erin that I am home.")
    async def send_mail(self, to: str, text: str) -> str:
        return f"{to} was told: {text}"
