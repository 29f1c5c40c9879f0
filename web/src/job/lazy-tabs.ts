// SPDX-License-Identifier: Apache-2.0

import { lazy } from 'react';

// Tabs that are loaded when they are used: they have charts, or the editor.
export const RanksTab = lazy(() => import('./ranks-tab'));
export const MetricsTab = lazy(() => import('./metrics-tab'));
export const ConfigurationTab = lazy(() => import('./configuration-tab'));
