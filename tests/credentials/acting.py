"""A provider that acts as its caller, for a process of its own."""

from toolplug import CallContext, FunctionProvider, SignInEndpoints, tool


class Acting(FunctionProvider):
    """Says with what it would act."""

    @tool
    async def headers(self, context: CallContext, refused: str = "") -> dict[str, str]:
        """Return the headers that a request of this caller would have."""
        credential = await context.credential(refused)
        assert context.user_auth is not None
        return dict(context.user_auth.headers(credential))


class NamesSignIn(Acting):
    """Says where its callers sign in."""

    def sign_in_endpoints(self) -> SignInEndpoints:
        return SignInEndpoints(authorization="https://id.example/auth", token="https://id.example/token", scopes=("a",))
