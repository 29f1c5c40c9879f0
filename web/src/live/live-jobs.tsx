// SPDX-License-Identifier: Apache-2.0

import { createContext, useContext, useEffect, useMemo, useState, useSyncExternalStore, type ReactNode } from 'react';
import { useSession } from '../session/session';
import { keyOf, type Jobs } from './events';
import { keepNamespace, keptNamespace } from './namespace';
import { JobWatch, type Connection, type Snapshot } from './watch';

interface Live {
  watch: JobWatch;
  namespace: string;
  /** watchNamespace starts a watch of only one namespace; "" watches all. */
  watchNamespace(namespace: string): void;
}

const LiveContext = createContext<Live | undefined>(undefined);

/** LiveJobs has the connection that all pages share. */
export function LiveJobs({ children }: { children: ReactNode }) {
  const { token, signOut } = useSession();
  // An object, so that a watch that was refused can be started again.
  const [chosen, setChosen] = useState(() => ({ namespace: keptNamespace() }));
  const watch = useMemo(() => new JobWatch(token, chosen.namespace, signOut), [token, chosen, signOut]);
  useEffect(() => {
    watch.start();
    return () => watch.stop();
  }, [watch]);
  const live = useMemo(() => {
    const watchNamespace = (namespace: string) => {
      keepNamespace(namespace);
      setChosen({ namespace });
    };
    return { watch, namespace: chosen.namespace, watchNamespace };
  }, [watch, chosen]);
  return <LiveContext.Provider value={live}>{children}</LiveContext.Provider>;
}

export function useLive(): Live {
  const live = useContext(LiveContext);
  if (!live) throw new Error('useLive needs LiveJobs');
  return live;
}

function useSnapshot<Part>(part: (snapshot: Snapshot) => Part): Part {
  const { watch } = useLive();
  return useSyncExternalStore(watch.subscribe, () => part(watch.get()));
}

export const useJobs = (): Jobs => useSnapshot((snapshot) => snapshot.jobs);
export const useConnection = (): Connection => useSnapshot((snapshot) => snapshot.connection);

/** useIsWatched is false while changes of a job are not received: its page must poll. */
export function useIsWatched({ namespace }: { namespace: string }): boolean {
  const { namespace: watched } = useLive();
  const { state } = useConnection();
  return (state === 'live' || state === 'connecting') && (!watched || watched === namespace);
}

/** useChanges is a number that is another one after each change of a job. */
export const useChanges = (job: { kind: string; namespace: string; name: string }): number => useSnapshot((snapshot) => snapshot.changes.get(keyOf(job)) ?? 0);
export const useRow = (job: { kind: string; namespace: string; name: string }) => useSnapshot((snapshot) => snapshot.jobs.rows.get(keyOf(job)));
