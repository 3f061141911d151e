// What a dashboard of the chart may hold: Grafana's own schema, and of Prometheus what its plugin adds to queries.
import type { AnnotationQuery, Dashboard as Published, DataQuery, Panel, VariableModel } from "@grafana/schema";
import type { Options as BarGauge } from "@grafana/schema/dist/esm/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen";
import type { Options as Heatmap } from "@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen";
import type { Options as Stat } from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen";
import type { Options as StateTimeline } from "@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen";
import type { Options as Text } from "@grafana/schema/dist/esm/raw/composable/text/panelcfg/x/TextPanelCfg_types.gen";
import type { Options as TimeSeries } from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";

// JSON has texts where TypeScript has members of enums.
type Written<T> = T extends string ? `${T}` : T extends object ? { [K in keyof T]: Written<T[K]> } : T;
// What is left out has a default.
type Some<T> = T extends (infer E)[] ? Some<E>[] : T extends object ? { [K in keyof T]?: Some<T[K]> } : T;

type Annotation = Partial<AnnotationQuery<DataQuery>> & {
  expr: string; step?: string; titleFormat?: string; textFormat?: string; useValueForTime?: boolean;
};
type Query = Some<DataQuery> & {
  expr: string; legendFormat?: string; format?: "time_series" | "table" | "heatmap"; instant?: boolean; range?: boolean;
};
type Of<Type extends string, Options> = Omit<Some<Panel>, "type" | "options" | "targets"> & {
  type: Type; title: string; options: Some<Options>; targets?: Query[];
};
type Row = { type: "row"; id: number; title: string; collapsed: boolean; panels: []; gridPos: Panel["gridPos"] };

export type Dashboard = Written<
  Omit<Published, "annotations" | "templating" | "panels" | "links"> & {
    annotations: { list: Annotation[] };
    templating: { list: (Some<VariableModel> & { definition?: string })[] };
    links: Some<NonNullable<Published["links"]>>;
    panels: (
      | Row
      | Of<"bargauge", BarGauge>
      | Of<"heatmap", Heatmap>
      | Of<"stat", Stat>
      | Of<"state-timeline", StateTimeline>
      | Of<"text", Text>
      | Of<"timeseries", TimeSeries>
    )[];
  }
>;
