// SPDX-License-Identifier: Apache-2.0

import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { createContext, useCallback, useContext, useEffect, useMemo, useState, type ReactNode } from 'react';
import { newClient, Problem, problemOf, unreachable, type Client } from '../api/client';
import { Loading } from '../shared/states';
import { forget, keep, keptCredentials, type Credentials } from './credentials';
import { SessionEnded, SignIn } from './sign-in';

export interface SessionValue {
  token: string;
  /** user is who a proxy in front of the server has signed in. */
  user?: string;
  client: Client;
  /** defaultNamespace is that of the kubeconfig, if odh dashboard has opened the page. */
  defaultNamespace: string;
  signOut(problem?: Problem): void;
}

const SessionContext = createContext<SessionValue | undefined>(undefined);

export function useSession(): SessionValue {
  const session = useContext(SessionContext);
  if (!session) throw new Error('useSession needs a Session');
  return session;
}

/** Session signs the user in; only then it shows the pages. */
export function Session({ children }: { children: ReactNode }) {
  const [credentials, setCredentials] = useState<Credentials | undefined>(keptCredentials);
  const [problem, setProblem] = useState<Problem>();
  const [code, setCode] = useState(takeCode);
  // Only at the start: a user who signs out does not want to be signed in again.
  const [isProxyUnknown, setProxyUnknown] = useState(!credentials && !code);
  const [hasProxy, setHasProxy] = useState(false);

  const signIn = useCallback((next: Credentials, isKept: boolean) => {
    if (isKept) keep(next);
    setProblem(undefined);
    setCredentials(next);
  }, []);

  useEffect(() => {
    if (!code) return;
    exchange(code.code)
      // The token is only valid for this server, which runs on the user's own machine.
      .then((token) => signIn({ token, defaultNamespace: code.namespace }, true))
      .catch((error: unknown) => setProblem(error as Problem))
      .finally(() => setCode(undefined));
  }, [code, signIn]);

  useEffect(() => {
    if (!isProxyUnknown) return;
    void userOfProxy().then((user) => {
      setProxyUnknown(false);
      setHasProxy(Boolean(user));
      if (user) setCredentials({ token: '', defaultNamespace: '', user });
    });
  }, [isProxyUnknown]);

  const session = useMemo<SessionValue | undefined>(() => {
    if (!credentials) return undefined;
    const signOut = (why?: Problem) => {
      forget(Boolean(why));
      setProblem(why);
      setCredentials(undefined);
    };
    return { ...credentials, client: newClient(credentials.token, signOut), signOut };
  }, [credentials]);

  const queries = useMemo(
    () => session && new QueryClient({ defaultOptions: { queries: { retry: false, refetchOnWindowFocus: false, staleTime: 10_000 } } }),
    [session],
  );

  if (code || isProxyUnknown) return <Loading label="Signing in" />;
  if (hasProxy && !credentials) return <SessionEnded problem={problem} />;
  if (!session || !queries) return <SignIn problem={problem} onToken={(token, isKept) => signIn({ token, defaultNamespace: '' }, isKept)} />;
  return (
    <SessionContext.Provider value={session}>
      <QueryClientProvider client={queries}>{children}</QueryClientProvider>
    </SessionContext.Provider>
  );
}

/** takeCode reads the one-time code of odh dashboard, and removes it from the address. */
function takeCode(): { code: string; namespace: string } | undefined {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const code = fragment.get('code');
  if (!code) return undefined;
  history.replaceState(null, '', location.pathname + location.search);
  return { code, namespace: fragment.get('namespace') ?? '' };
}

/** userOfProxy is the user whom a proxy in front of the server has signed in: its requests need no token. */
async function userOfProxy(): Promise<string | undefined> {
  const response = await fetch('/api/v1/user').catch(() => undefined);
  if (!response?.ok) return undefined;
  const body = (await response.json().catch(() => undefined)) as { name?: string } | undefined;
  return body?.name;
}

const exchanges = new Map<string, Promise<string>>();

/** exchange gets the token for a code; a code is sent once, because it is valid once. */
function exchange(code: string): Promise<string> {
  const sent = exchanges.get(code) ?? send(code);
  exchanges.set(code, sent);
  return sent;
}

async function send(code: string): Promise<string> {
  const response = await fetch('/session', { method: 'POST', body: JSON.stringify({ code }), headers: { 'Content-Type': 'application/json' } }).catch(() => {
    throw unreachable();
  });
  const body = (await response.json().catch(() => undefined)) as { token?: string } | undefined;
  if (!response.ok || !body?.token) throw problemOf(response.status, body);
  return body.token;
}
