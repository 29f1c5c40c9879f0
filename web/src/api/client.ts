// SPDX-License-Identifier: Apache-2.0

import createClient from 'openapi-fetch';
import type { components, paths } from './schema';

export type Schemas = components['schemas'];
export type Row = Schemas['Row'];
export type LogLine = Schemas['LogLine'];
export type Diagnosis = Schemas['Diagnosis'];
export type Finding = Schemas['Finding'];
export type PreflightReport = Schemas['PreflightReport'];
export type Runtime = Schemas['Runtime'];
export type JobEvent = Schemas['Event'];

/** A job of either kind. The API describes its metadata only as an object: these are the fields that the page reads. */
export interface Job {
  apiVersion: string;
  kind: string;
  metadata: {
    name: string;
    namespace: string;
    uid?: string;
    creationTimestamp?: string;
    deletionTimestamp?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    [field: string]: unknown;
  };
  spec: Partial<Schemas['TrainJobSpec'] & Schemas['MPIJobSpec']>;
  status?: JobStatus;
}

/** JobStatus is the status of both kinds, which have the same fields; before the operator has processed a job, it has none of them. */
export type JobStatus = Partial<Schemas['TrainJobStatus']>;

export type PodState = NonNullable<JobStatus['launcherPodStatus']>;

/** plural is the name of a kind in paths. */
export type Plural = 'trainjobs' | 'mpijobs';

export const pluralOf = (kind: string): Plural => (kind === 'MPIJob' ? 'mpijobs' : 'trainjobs');

/** Problem is an error of the API, in its format. */
export class Problem extends Error {
  constructor(
    readonly code: number,
    message: string,
    readonly suggestions: string[] = [],
    readonly details: { field: string; reason: string }[] = [],
  ) {
    super(message);
  }
}

/** problemOf reads an error of the API, or describes a response that is none. */
export function problemOf(code: number, body: unknown): Problem {
  if (typeof body === 'object' && body !== null && 'message' in body) {
    const error = body as Partial<Schemas['Error']>;
    return new Problem(code, String(error.message), error.suggestions ?? [], error.details ?? []);
  }
  return new Problem(code, `The server answered with HTTP status ${code}`);
}

export const unreachable = () => new Problem(0, 'The server cannot be reached', ['Check your connection', 'Check whether the server is running']);

/** authorization has the token; without one, a proxy in front of the server adds the user's. */
export const authorization = (token: string): Record<string, string> => (token ? { Authorization: `Bearer ${token}` } : {});

export type Client = ReturnType<typeof newClient>;

/** newClient returns a client that sends the token, and reports a token that is refused. */
export function newClient(token: string, onRefusedToken: (problem: Problem) => void) {
  const client = createClient<paths>({ baseUrl: location.origin, headers: authorization(token) });
  client.use({
    async onResponse({ response }) {
      if (response.ok) return;
      const body: unknown = await response.clone().json().catch(() => undefined);
      const problem = problemOf(response.status, body);
      if (response.status === 401) onRefusedToken(problem);
      throw problem;
    },
    onError: () => unreachable(),
  });
  return client;
}
