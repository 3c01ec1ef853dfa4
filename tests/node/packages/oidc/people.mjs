// An OpenID provider on a port of this machine at which people sign in under any name: oidc-provider with its own pages.
// Each line of its output is JSON: every token that it has given, every one that was revoked, for a test to look for.
import { generateKeyPairSync, randomUUID } from "node:crypto";
import Provider from "oidc-provider";

const port = process.argv[2];
const given = JSON.parse(process.argv[3]);  // jwt: the resources whose tokens are JWTs; clients; life_s of access tokens
const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const tell = (kind, value) => console.log(JSON.stringify({ kind, value }));
const provider = new Provider(`http://127.0.0.1:${port}`, {
  jwks: { keys: [{ ...privateKey.export({ format: "jwk" }), kid: randomUUID(), use: "sig", alg: "RS256" }] },
  clients: given.clients,
  scopes: ["openid", "offline_access", "read"],
  findAccount: (context, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  cookies: { keys: [randomUUID()] },
  ttl: { AccessToken: given.life_s, ClientCredentials: 3600, RefreshToken: 3600, Grant: 3600, Interaction: 3600, Session: 3600 },
  rotateRefreshToken: true,
  issueRefreshToken: (context, client) => client.grantTypeAllowed("refresh_token"),
  features: {
    clientCredentials: { enabled: true },
    introspection: { enabled: true },
    registration: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (context, resource) => ({
        scope: "read",
        audience: resource,
        ...(given.jwt.includes(resource) ? { accessTokenFormat: "jwt", jwt: { sign: { alg: "RS256" } } } : { accessTokenFormat: "opaque" }),
      }),
    },
  },
});
provider.use(async (context, next) => {
  await next();
  const name = context.oidc?.route;
  if (name === "token") tell("given", { ...context.body, grant: context.oidc.params?.grant_type, subject: context.oidc.entities.AccessToken?.accountId });
  else if (name === "registration") tell("registered", context.body);
});
provider.on("refresh_token.destroyed", (token) => tell("revoked", token.jti));
provider.on("server_error", (context, error) => tell("error", String(error.stack)));
provider.listen(Number(port), "127.0.0.1", () => tell("ready", port));
