// SPDX-License-Identifier: Apache-2.0

import './metrics.css';
import { Title } from '@patternfly/react-core';
import { CurvesPart } from './curves-part';
import type { TabProps } from './job-tabs';
import { UsageTable } from './usage-table';

/** MetricsTab shows what the training reports over time, and what the pods use. Records have no usage. */
export default function MetricsTab(props: TabProps) {
  return (
    <div className="tr-metrics">
      <section aria-label="Training">
        <Title headingLevel="h2">Training</Title>
        <CurvesPart {...props} />
      </section>
      {!props.reference.record && (
        <section aria-label="Usage of resources">
          <Title headingLevel="h2">Usage of resources</Title>
          <UsageTable {...props} />
        </section>
      )}
    </div>
  );
}
