// SPDX-License-Identifier: Apache-2.0

import { configure } from '@testing-library/dom';

// On a busy machine, an element may take longer than the default second to appear.
configure({ asyncUtilTimeout: 10_000 });
