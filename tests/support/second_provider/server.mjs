// Reads lines of JSON: first the provider's clients, then each user who signs in from now on.
// Writes one for each: the issuer, then {}. Ends when its input does.
import { Console } from 'node:console';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';

globalThis.console = new Console(process.stderr); // warnings of the library are no answers
const { Provider } = await import('oidc-provider');

const key = (type, options, alg) => {
  const { privateKey } = generateKeyPairSync(type, options);
  return { ...privateKey.export({ format: 'jwk' }), alg, use: 'sig', kid: `second-${alg}` };
};
const answer = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
let user = { sub: 'alice' };

// Whoever the test named is signed in, and agrees to everything: no page is shown.
async function agreed(ctx) {
  const { client, provider, session, requestParamOIDCScopes } = ctx.oidc;
  const grant = new provider.Grant({ accountId: session.accountId, clientId: client.clientId });
  grant.addOIDCScope([...requestParamOIDCScopes].join(' '));
  await grant.save();
  return grant;
}

function made(issuer, { clients, audience }) {
  const provider = new Provider(issuer, {
    clients,
    claims: { openid: ['sub'], profile: ['name', 'groups'], email: ['email', 'email_verified'] },
    conformIdTokenClaims: false, // groups are in ID tokens
    cookies: { keys: [randomBytes(32).toString('hex')] },
    findAccount: (ctx, id) => ({
      accountId: id,
      claims: () => ({ ...(id === user.sub ? user : {}), sub: id }),
    }),
    loadExistingGrant: agreed,
    interactions: { url: (ctx, interaction) => `/login/${interaction.uid}` },
    jwks: { keys: [key('rsa', { modulusLength: 2048 }, 'RS256'), key('ec', { namedCurve: 'P-256' }, 'ES256')] },
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      deviceFlow: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: (ctx) => (ctx.oidc.params.grant_type === 'client_credentials' ? audience : undefined),
        getResourceServerInfo: () => ({ scope: 'bind', audience, accessTokenFormat: 'jwt' }),
      },
    },
  });
  provider.use(async (ctx, next) => {
    if (!ctx.path.startsWith('/login/')) return next();
    return provider.interactionFinished(ctx.req, ctx.res, { login: { accountId: user.sub } });
  });
  return provider;
}

const server = createServer();
server.listen(0, '127.0.0.1');
await new Promise((resolve) => { server.once('listening', resolve); });
let started = false;
for await (const line of createInterface({ input: process.stdin })) {
  const said = JSON.parse(line);
  if (started) {
    user = said;
    answer({});
  } else {
    started = true;
    const issuer = `http://127.0.0.1:${server.address().port}`;
    server.on('request', made(issuer, said).callback());
    answer({ issuer });
  }
}
process.exit(0);
