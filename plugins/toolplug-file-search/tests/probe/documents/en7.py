"""Rates of exchange, fetched once a day."""


class ExchangeRateCache:
    """Keeps the rates of one day."""

    def fetch_latest_rates(self, base_currency: str) -> dict[str, float]:
        """Ask the bank for today's rates, and keep them until midnight."""
        raise NotImplementedError


def convertAmount(amount: float, rate: float) -> float:
    """Round to cents after the multiplication."""
    return round(amount * rate, 2)
