// An OpenID provider on a port of this machine, as docs/how-to/sign-in-with-oidc.md has it. Its key is new at each start.
import { generateKeyPairSync, randomUUID } from "node:crypto";
import Provider from "oidc-provider";

const port = process.argv[2];
const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const issuer = `http://127.0.0.1:${port}`;
const provider = new Provider(issuer, {
  jwks: { keys: [{ ...privateKey.export({ format: "jwk" }), kid: randomUUID(), use: "sig", alg: "RS256" }] },
  clients: ["assistant", "brief"].map((name) => ({
    client_id: name,
    client_secret: `${name}-secret`,
    grant_types: ["client_credentials"],
    redirect_uris: [],
    response_types: [],
  })),
  ttl: { ClientCredentials: (context, token, client) => (client.clientId === "brief" ? 1 : 600) },
  features: {
    devInteractions: { enabled: false },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (context, resource) => ({
        audience: resource,
        scope: "tools:read tools:call",
        accessTokenFormat: "jwt",
        jwt: { sign: { alg: "RS256" } },
      }),
    },
  },
  extraTokenClaims: () => ({ tenant: "t1", agents: ["clerk"] }),
});
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
