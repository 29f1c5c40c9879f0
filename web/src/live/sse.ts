// SPDX-License-Identifier: Apache-2.0

import { authorization, Problem, problemOf, unreachable } from '../api/client';

/** messagesOf splits server-sent events into the JSON of their messages. */
export class MessageReader {
  private rest = '';

  /** read returns the messages that are complete with this text. */
  read(text: string): unknown[] {
    const events = (this.rest + text).split('\n\n');
    this.rest = events.pop() ?? '';
    return events.flatMap((event) => {
      const data = event.split('\n').filter((line) => line.startsWith('data: ')).map((line) => line.slice(6));
      return data.length > 0 ? [JSON.parse(data.join('\n')) as unknown] : [];
    });
  }
}

/**
 * TokenExpired: the token that a proxy has added to the request of a stream has expired. The next
 * request has another one, if the proxy's session still exists.
 */
export class TokenExpired extends Problem {}

/** The server sends a heartbeat every 15 seconds. */
const silence = 40_000;

/**
 * stream reads server-sent events until the server ends them. EventSource cannot send a
 * token. A message of type ERROR, a refusal or a lost connection is thrown as a Problem.
 */
export async function stream(path: string, token: string, signal: AbortSignal, handle: (messages: unknown[]) => void): Promise<void> {
  const silent = new AbortController();
  let timer = setTimeout(() => silent.abort(), silence);
  try {
    const response = await fetch(path, {
      headers: { ...authorization(token), Accept: 'text/event-stream' },
      signal: AbortSignal.any([signal, silent.signal]),
      cache: 'no-store',
    });
    if (!response.ok || !response.body) {
      throw problemOf(response.status, await response.json().catch(() => undefined));
    }
    handle([]); // connected
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const messages = new MessageReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => silent.abort(), silence);
      const read = messages.read(value);
      const failed = read.find((message) => (message as { type?: string }).type === 'ERROR') as { code: number } | undefined;
      handle(read.filter((message) => !['HEARTBEAT', 'ERROR'].includes((message as { type: string }).type)));
      if (failed?.code === 401 && !token) throw new TokenExpired(0, 'The token of this connection has expired');
      if (failed) throw problemOf(failed.code, failed);
    }
  } catch (error) {
    if (error instanceof TypeError || silent.signal.aborted) throw unreachable();
    throw error;
  } finally {
    clearTimeout(timer);
  }
}
