// SPDX-License-Identifier: Apache-2.0

import { Label } from '@patternfly/react-core';
import BanIcon from '@patternfly/react-icons/dist/esm/icons/ban-icon';
import CheckCircleIcon from '@patternfly/react-icons/dist/esm/icons/check-circle-icon';
import ExclamationCircleIcon from '@patternfly/react-icons/dist/esm/icons/exclamation-circle-icon';
import HourglassHalfIcon from '@patternfly/react-icons/dist/esm/icons/hourglass-half-icon';
import InProgressIcon from '@patternfly/react-icons/dist/esm/icons/in-progress-icon';
import PauseCircleIcon from '@patternfly/react-icons/dist/esm/icons/pause-circle-icon';
import type { ComponentProps, ReactNode } from 'react';

const looks: Record<string, [ComponentProps<typeof Label>['color'], ReactNode]> = {
  Submitted: ['grey', <HourglassHalfIcon key="icon" />],
  Queued: ['grey', <HourglassHalfIcon key="icon" />],
  Suspended: ['grey', <PauseCircleIcon key="icon" />],
  Deleting: ['grey', <BanIcon key="icon" />],
  Pending: ['purple', <HourglassHalfIcon key="icon" />],
  Restarting: ['orange', <InProgressIcon key="icon" />],
  Running: ['blue', <InProgressIcon key="icon" />],
  Succeeded: ['green', <CheckCircleIcon key="icon" />],
  Failed: ['red', <ExclamationCircleIcon key="icon" />],
};

/** Status is the status of a job or a pod: a word and an icon, not only a colour. */
export function Status({ status }: { status: string }) {
  const [color, icon] = looks[status] ?? ['grey', undefined];
  return (
    <Label color={color} icon={icon} isCompact>
      {status || 'Unknown'}
    </Label>
  );
}
