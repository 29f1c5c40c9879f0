// SPDX-License-Identifier: Apache-2.0

import { Button } from '@patternfly/react-core';
import { useLive } from '../live/live-jobs';

/** AllNamespaces goes back from the jobs of one namespace to those of all. */
export function AllNamespaces() {
  const { watchNamespace } = useLive();
  return (
    <Button variant="link" onClick={() => watchNamespace('')}>
      Show all namespaces
    </Button>
  );
}
