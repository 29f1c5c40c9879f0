// SPDX-License-Identifier: Apache-2.0

/** Delay before the first attempt to connect again, and the longest. */
const firstDelay = 500;
const longestDelay = 15_000;

/** A connection that lasts so long is no failure. One that is refused after some events is. */
export const settled = 10_000;

/** retryDelay is the time until the next attempt, after failures without one that settled. */
export const retryDelay = (failures: number) => Math.min(firstDelay * 2 ** (failures - 1), longestDelay);
