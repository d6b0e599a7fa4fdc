"use strict";
// The page's figures. All numbers come from Python, but for the mean and the band of the learning curves that the
// reader chooses among all settings; these follow stats.py.
(async () => {
  const ELEMENT = (id) => document.getElementById(id);
  const RESAMPLES = 1000;

  async function unpacked(id) {
    const packed = Uint8Array.from(atob(ELEMENT(id).textContent), (letter) => letter.charCodeAt(0));
    ELEMENT(id).remove();
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).arrayBuffer();
  }
  const text = async (id) => new TextDecoder().decode(await unpacked(id));

  function complain(problem) {
    ELEMENT("problem").textContent = `The figures can't be shown: ${problem}. They are in the folder figures.`;
    ELEMENT("problem").hidden = false;
  }
  if (typeof DecompressionStream === "undefined") return complain("this page needs a browser of 2023 or later");

  const script = document.createElement("script");
  script.textContent = await text("packed-plotly");
  document.head.append(script);
  const DATA = JSON.parse(await text("packed-data"));
  const CURVES = new Uint16Array(await unpacked("packed-curves"));

  // ---- theme ----------------------------------------------------------------------------------------------------
  const darkness = matchMedia("(prefers-color-scheme: dark)");
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const agents = Object.keys(DATA.agents);
  function agentStyle(agent) {
    const place = agents.indexOf(agent),
      colours = DATA.colours[darkness.matches ? "dark" : "light"];
    const dashes = ["solid", "dash", "dot", "dashdot"];
    return { colour: colours[place % colours.length], dash: dashes[Math.floor(place / colours.length) % 4] };
  }
  function shades(count) {
    // of viridis, without the end that drowns in the background
    const [low, high] = darkness.matches ? [0.25, 1] : [0, 0.88],
      all = DATA.viridis;
    const at = (place) => low + (high - low) * (count > 1 ? place / (count - 1) : 0.5);
    return Array.from({ length: count }, (_, place) => all[Math.round(at(place) * (all.length - 1))]);
  }
  const fade = (hex, alpha) => `rgba(${[1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)).join(",")},${alpha})`;
  const shown = (value) =>
    value === null ? "–" : Math.abs(value) >= 100 ? value.toFixed(0) : +value.toPrecision(3) + "";

  // ---- statistics of curves, as in stats.py -----------------------------------------------------------------------
  function curve(env, row) {
    // one run, in the environment's returns
    const { low, high } = DATA.envs[env],
      bins = DATA.bins;
    return Array.from(CURVES.subarray(row * bins, (row + 1) * bins), (level) => low + ((high - low) * level) / 65535);
  }
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  function quantile(sorted, share) {
    const at = (sorted.length - 1) * share,
      below = Math.floor(at),
      above = Math.min(below + 1, sorted.length - 1);
    return sorted[below] + (sorted[above] - sorted[below]) * (at - below);
  }
  function draws(count) {
    // the same every time (mulberry32)
    let state = 1;
    const random = () => {
      state = (state + 0x6d2b79f5) | 0;
      let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
      mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
      return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
    };
    return Array.from({ length: RESAMPLES }, () => Array.from({ length: count }, () => Math.floor(random() * count)));
  }
  function bandOf(curves, band) {
    const count = curves.length,
      low = [],
      high = [],
      middle = [];
    const resamples = band === "bootstrap" && count > 1 ? draws(count) : [];
    for (let bin = 0; bin < DATA.bins; bin++) {
      const values = curves.map((one) => one[bin]),
        centre = mean(values);
      let ends = [centre, centre];
      if (count > 1 && band === "standard-error") {
        const spread = Math.sqrt(values.reduce((sum, value) => sum + (value - centre) ** 2, 0) / (count - 1) / count);
        ends = [centre - spread, centre + spread];
      } else if (count > 1 && band === "bootstrap") {
        const means = Float64Array.from(
          resamples,
          (draw) => draw.reduce((sum, at) => sum + values[at], 0) / count,
        ).sort();
        ends = [quantile(means, 0.025), quantile(means, 0.975)];
      } else if (count > 1) {
        const sorted = Float64Array.from(values).sort(),
          rank = DATA.tolerance[count][0];
        ends = [sorted[rank - 1], sorted[count - rank]];
      }
      middle.push(centre);
      low.push(ends[0]);
      high.push(ends[1]);
    }
    return { middle, low, high };
  }

  // ---- figures with controls --------------------------------------------------------------------------------------
  const redraws = [];
  function figure(name, controls, draw) {
    const home = ELEMENT(name);
    if (!home) return;
    const state = {},
      plot = home.querySelector(".plot"),
      panel = home.querySelector(".controls"),
      made = {};
    for (const [key, control] of Object.entries(controls)) {
      const label = document.createElement("label"),
        input = document.createElement(control.options ? "select" : "input");
      const words = document.createElement("span");
      words.textContent = control.label;
      if (!control.options) {
        input.type = "checkbox";
        label.className = "check";
        label.append(input, words);
      } else label.append(words, input);
      input.name = `${name}-${key}`;
      input.addEventListener("change", () => {
        state[key] = control.options ? input.value : input.checked;
        refresh();
      });
      panel.append(label);
      made[key] = { label, input, words, control };
    }
    function fill() {
      for (const [key, { label, input, words, control }] of Object.entries(made)) {
        if (!control.options) {
          state[key] ??= false;
          continue;
        }
        const options = control.options(state);
        if (typeof control.label === "function") words.textContent = control.label(state);
        if (!options.some(([value]) => value === state[key])) state[key] = options.length ? options[0][0] : null;
        input.replaceChildren(
          ...options.map(([value, words]) => new Option(words, value, false, value === state[key])),
        );
        label.style.display = options.length > (control.least ?? 1) ? "" : "none";
      }
    }
    function refresh() {
      fill();
      const { traces, layout, caption } = draw(state, plot.clientWidth);
      const plain = { family: css("--font") || "system-ui, sans-serif", color: css("--ink"), size: 13 };
      const common = { paper_bgcolor: css("--paper"), plot_bgcolor: css("--paper"), font: plain, autosize: true };
      for (const key of Object.keys(layout)) {
        if (/^[xy]axis/.test(key))
          layout[key] = { gridcolor: css("--line"), zeroline: false, automargin: true, ...layout[key] };
      }
      const hover = { hoverlabel: { bgcolor: css("--panel"), font: { color: css("--ink") } } };
      plot.style.height = `${layout.height ?? 420}px`;
      Plotly.react(plot, traces, { ...common, ...hover, ...layout }, { responsive: true, displayModeBar: false });
      home.querySelector("figcaption").textContent = caption;
    }
    for (const format of ["svg", "png"]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = `Download ${format.toUpperCase()}`;
      button.addEventListener("click", () =>
        Plotly.downloadImage(plot, {
          format,
          scale: 2,
          width: Math.max(plot.clientWidth, 700),
          height: plot.clientHeight,
          filename: [name, state.env, state.agent].filter(Boolean).join("-"),
        }),
      );
      home.querySelector(".downloads").append(button, " ");
    }
    refresh();
    redraws.push(refresh);
  }
  const same = (names) => names.map((name) => [name, name]);
  const hyper = (name) => DATA.hypers[name] ?? name;

  function panels(titles, width, height) {
    // small multiples, one below the other on a phone
    const columns = width < 620 ? 1 : Math.min(titles.length, 3),
      rows = Math.ceil(titles.length / columns);
    const layout = {
      grid: { rows, columns, pattern: "independent", xgap: 0.16, ygap: 0.34 },
      height: rows * height + 110,
    };
    layout.annotations = titles.map((title, place) => ({
      text: title,
      showarrow: false,
      xref: `x${place ? place + 1 : ""} domain`,
      yref: `y${place ? place + 1 : ""} domain`,
      x: 0.5,
      y: 1,
      yanchor: "bottom",
      yshift: 4,
      font: { size: 14 },
    }));
    layout.margin = { t: 40, r: 10, l: 60, b: 60 };
    return layout;
  }
  const axis = (kind, place) => `${kind}${place ? place + 1 : ""}`;
  function scale(values) {
    const logarithmic = Math.min(...values) > 0 && Math.max(...values) >= 10 * Math.min(...values);
    return { type: logarithmic ? "log" : "linear", tickvals: values, ticktext: values.map(String) };
  }
  const above = (pixels = 6, height = 300) => ({
    orientation: "h",
    x: 0,
    xanchor: "left",
    y: 1 + pixels / height,
    yanchor: "bottom",
    traceorder: "normal",
  });

  // ---- learning curves --------------------------------------------------------------------------------------------
  const ONE = "one";
  const bandWords = {
    "standard-error": "mean ± standard error",
    bootstrap: "mean, 95 % bootstrap interval",
    tolerance: "mean, tolerance band",
  };
  const settingsOf = (state) => DATA.curves[state.env]?.[state.agent] ?? [];
  const hyperControls = {};
  for (let place = 0; place < DATA.mostAxes; place++) {
    const name = (state) => Object.keys(settingsOf(state)[0]?.hypers ?? {})[place];
    hyperControls[`hyper${place}`] = {
      label: (state) => hyper(name(state) ?? ""),
      options: (state) => {
        if (state.view !== ONE || name(state) === undefined) return [];
        const values = [...new Set(settingsOf(state).map((one) => one.hypers[name(state)]))].sort((a, b) => a - b);
        return values.map((value) => [String(value), String(value)]);
      },
    };
  }
  figure(
    "learning-curves",
    {
      env: { label: "environment", options: () => same(Object.keys(DATA.curves)) },
      view: {
        label: "settings",
        options: (state) => [
          ...DATA.views.filter(([by]) => DATA.chosen[by][state.env]),
          [ONE, "one setting of my choice"],
        ],
      },
      agent: {
        label: "agent",
        least: 0,
        options: (state) => (state.view === ONE ? same(Object.keys(DATA.curves[state.env])) : []),
      },
      ...hyperControls,
      band: { label: "band", options: () => Object.entries(bandWords) },
      single: { label: "single runs" },
    },
    (state) => {
      const lines = [];
      if (state.view === ONE) {
        const wanted = settingsOf(state).find((one) =>
          Object.values(one.hypers).every((value, place) => String(value) === state[`hyper${place}`]),
        );
        if (wanted) lines.push({ agent: state.agent, setting: wanted, rows: wanted.seeds.map((_, place) => place) });
      } else {
        for (const [agent, pick] of Object.entries(DATA.chosen[state.view][state.env])) {
          const setting = DATA.curves[state.env][agent]?.find((one) => one.id === pick.id);
          if (setting)
            lines.push({
              agent,
              setting,
              rows: setting.seeds.flatMap((seed, place) => (pick.seeds.includes(seed) ? [place] : [])),
              optimistic: pick.optimistic,
            });
        }
      }
      const traces = [],
        steps = Array.from({ length: DATA.bins }, (_, bin) => (bin + 1) * DATA.envs[state.env].curveSteps);
      for (const { agent, setting, rows } of lines) {
        const { colour, dash } = agentStyle(agent),
          curves = rows.map((place) => curve(state.env, setting.first + place));
        const { middle, low, high } = bandOf(curves, state.band),
          diverged = rows.filter((place) => setting.diverged[place]).length;
        const count =
          `${rows.length} ${rows.length === 1 ? "run" : "runs"}` + (diverged ? `, ${diverged} diverged` : "");
        const held =
          state.band === "tolerance" && rows.length > 1
            ? `, band holds ≥ ${Math.floor(100 * DATA.tolerance[rows.length][1])} %`
            : "";
        if (state.single) {
          curves.forEach((one, place) =>
            traces.push({
              x: steps,
              y: one,
              mode: "lines",
              line: { color: colour, width: 0.7 },
              opacity: 0.5,
              showlegend: false,
              name: `${agent}, seed ${setting.seeds[rows[place]]}`,
            }),
          );
        }
        traces.push({
          x: [...steps, ...steps.slice().reverse()],
          y: [...high, ...low.slice().reverse()],
          fill: "toself",
          fillcolor: fade(colour, 0.22),
          line: { width: 0 },
          mode: "lines",
          hoverinfo: "skip",
          showlegend: false,
        });
        traces.push({
          x: steps,
          y: middle,
          mode: "lines",
          line: { color: colour, dash, width: 2.5 },
          name: `${agent}, ${count}${held}`,
          hovertemplate: "%{y:.4g}",
        });
      }
      const optimistic = lines.some((line) => line.optimistic)
        ? " These settings were chosen on these very runs: the curves are optimistic."
        : "";
      const none = lines.length ? "" : " There are no runs with these values.";
      const which = lines.map(({ agent, setting }) => `${agent} with ${setting.label}`).join("; ");
      return {
        traces,
        layout: {
          xaxis: { title: { text: "environment steps" }, range: [0, steps.at(-1)] },
          yaxis: { title: { text: "return" } },
          hovermode: state.single ? "closest" : "x unified",
          legend: above(),
          margin: { t: 10, r: 10, l: 60, b: 50 },
          height: 460,
        },
        caption: `${state.env}: ${bandWords[state.band]}${which && `; ${which}`}.${none}${optimistic}`,
      };
    },
  );

  // ---- sensitivity ------------------------------------------------------------------------------------------------
  const axesOn = (env) => [...new Set(Object.values(DATA.sensitivity[env]).flatMap((one) => Object.keys(one.axes)))];
  const entropyFirst = (name) => (name.startsWith("entropy") ? 0 : 1);
  function linesOver({ env, across }) {
    // what varies together with it, for some agent
    const together = Object.values(DATA.sensitivity[env]).filter((one) => across in one.axes);
    const names = [...new Set(together.flatMap((one) => Object.keys(one.axes)))].filter((name) => name !== across);
    return names.sort((one, other) => entropyFirst(one) - entropyFirst(other));
  }
  figure(
    "sensitivity",
    {
      env: { label: "environment", options: () => same(Object.keys(DATA.sensitivity)) },
      across: { label: "hyperparameter", options: (state) => axesOn(state.env).map((name) => [name, hyper(name)]) },
      lines: {
        label: "a line for each",
        options: (state) => [...linesOver(state).map((name) => [name, hyper(name)]), ["", "nothing: best of all"]],
      },
      style: {
        label: "show",
        options: (state) =>
          state.lines
            ? [
                ["lines", "lines"],
                ["region", "region between the lines"],
              ]
            : [["lines", "lines"]],
      },
    },
    (state, width) => {
      const drawn = Object.entries(DATA.sensitivity[state.env]).filter(
        ([, one]) => one.curves[state.across]?.[state.lines],
      );
      const layout = panels(
          drawn.map(([agent]) => agent),
          width,
          300,
        ),
        traces = [],
        listed = new Set();
      const every = [...new Set(drawn.flatMap(([, one]) => one.axes[state.lines] ?? []))].sort((a, b) => a - b),
        colourOf = shades(every.length);
      drawn.forEach(([agent, one], place) => {
        const points = one.axes[state.across],
          curves = one.curves[state.across][state.lines];
        const on = { xaxis: axis("x", place), yaxis: axis("y", place) };
        if (state.style === "region") {
          const known = points.map((_, at) => curves.map((line) => line[at]).filter((value) => value !== null));
          const there = points.map((point, at) => [point, known[at]]).filter(([, values]) => values.length);
          const x = there.map(([point]) => point),
            low = there.map(([, values]) => Math.min(...values)),
            high = there.map(([, values]) => Math.max(...values));
          const { colour } = agentStyle(agent);
          traces.push({
            ...on,
            x,
            y: low,
            mode: "lines",
            line: { color: colour, width: 1 },
            name: `${agent}, lowest`,
            showlegend: false,
          });
          traces.push({
            ...on,
            x,
            y: high,
            mode: "lines",
            line: { color: colour, width: 1 },
            fill: "tonexty",
            fillcolor: fade(colour, 0.35),
            name: `${agent}, highest`,
            showlegend: false,
          });
        } else {
          curves.forEach((line, at) => {
            const value = state.lines ? one.axes[state.lines][at] : null,
              name = state.lines ? `${hyper(state.lines)} = ${value}` : agent;
            const colour = state.lines ? colourOf[every.indexOf(value)] : agentStyle(agent).colour;
            traces.push({
              ...on,
              x: points,
              y: line,
              mode: "lines+markers",
              line: { color: colour, width: 2 },
              name,
              legendgroup: name,
              showlegend: !listed.has(name) && Boolean(state.lines),
            });
            listed.add(name);
          });
        }
        layout[`xaxis${place ? place + 1 : ""}`] = { title: { text: hyper(state.across) }, ...scale(points) };
        layout[`yaxis${place ? place + 1 : ""}`] = {
          title: { text: place ? "" : "average return" },
          ...(place ? { matches: "y" } : {}),
        };
      });
      layout.legend = above(30, layout.height - 100);
      const others = "every other hyperparameter at its best for each point",
        region = state.style === "region";
      const what = region ? `band between the lines of all values of ${hyper(state.lines)}; ` : "";
      const without = Object.keys(DATA.sensitivity[state.env]).filter(
        (agent) => !drawn.some(([name]) => name === agent),
      );
      const missing = without.length ? ` Not varied by ${without.join(", ")}.` : "";
      return {
        traces,
        layout,
        caption: `${state.env}: ${what}mean of average returns over the runs that all settings have, ${others}.${missing}`,
      };
    },
  );

  // ---- heat maps --------------------------------------------------------------------------------------------------
  const pairsOf = (state) => DATA.pairs[state.env]?.[state.agent] ?? [];
  figure(
    "heat-maps",
    {
      env: { label: "environment", options: () => same(Object.keys(DATA.pairs)) },
      agent: { label: "agent", options: (state) => same(Object.keys(DATA.pairs[state.env])) },
      pair: {
        label: "pair of hyperparameters",
        options: (state) =>
          pairsOf(state).map((one, place) => [String(place), `${hyper(one.first)} and ${hyper(one.second)}`]),
      },
      show: {
        label: "show",
        options: () => [
          ["value", "average return"],
          ["diverged", "share of runs that diverged"],
        ],
      },
    },
    (state) => {
      const one = pairsOf(state)[Number(state.pair)],
        limits = state.show === "diverged" ? { zmin: 0, zmax: 1 } : {};
      const trace = {
        type: "heatmap",
        z: one[state.show],
        x: one.columns.map(String),
        y: one.rows.map(String),
        xgap: 1,
        ygap: 1,
        ...limits,
        colorscale:
          state.show === "diverged"
            ? [
                [0, css("--panel")],
                [1, "#D55E00"],
              ]
            : "Cividis",
        texttemplate: "%{z:.3g}",
        colorbar: { thickness: 12 },
        hovertemplate: `${hyper(one.first)} = %{y}<br>${hyper(one.second)} = %{x}<br>%{z:.4g}<extra></extra>`,
      };
      const category = { type: "category", showgrid: false };
      return {
        traces: [trace],
        layout: {
          xaxis: { ...category, title: { text: hyper(one.second) } },
          yaxis: { ...category, title: { text: hyper(one.first) } },
          margin: { t: 10, r: 10, l: 70, b: 60 },
          height: 440,
        },
        caption: `${state.agent} on ${state.env}: ${state.show === "value" ? "mean of average returns" : "share of runs that diverged"}, averaged over the other hyperparameters.`,
      };
    },
  );

  // ---- variance ---------------------------------------------------------------------------------------------------
  figure("variance", { env: { label: "environment", options: () => same(Object.keys(DATA.variance)) } }, (state) => {
    const rows = Object.entries(DATA.variance[state.env]),
      names = [...new Set(rows.flatMap(([, shares]) => Object.keys(shares)))];
    const mains = names.filter((name) => !name.includes(" × ")),
      others = names.filter((name) => name.includes(" × "));
    const bright = DATA.colours[darkness.matches ? "dark" : "light"],
      grey = (place) => `hsl(210 6% ${35 + (45 * place) / Math.max(1, others.length - 1)}%)`;
    const traces = names.map((name) => ({
      type: "bar",
      orientation: "h",
      name,
      y: rows.map(([agent]) => agent),
      x: rows.map(([, shares]) => shares[name] ?? 0),
      hovertemplate: "%{x:.1%}",
      marker: {
        color: mains.includes(name) ? bright[mains.indexOf(name) % bright.length] : grey(others.indexOf(name)),
        line: { color: css("--paper"), width: 1 },
      },
    }));
    return {
      traces,
      layout: {
        barmode: "stack",
        xaxis: { title: { text: "share of variance" }, range: [0, 1], tickformat: ".0%" },
        yaxis: { autorange: "reversed" },
        legend: above(),
        margin: { t: 10, r: 10, l: 80, b: 50 },
        height: 200 + 50 * rows.length,
      },
      caption: `${state.env}: exact functional ANOVA over the full grid of settings. Sets of hyperparameters stand for their interaction.`,
    };
  });

  // ---- comparison -------------------------------------------------------------------------------------------------
  const comparison = (state) => DATA.comparisons[Number(state.which)];
  figure(
    "comparison",
    {
      which: { label: "compare", options: () => DATA.comparisons.map((one, place) => [String(place), one.title]) },
      show: {
        label: "show",
        options: () => [
          ["means", "interquartile means"],
          ["improvement", "probability of improvement"],
          ["profiles", "performance profiles"],
        ],
      },
    },
    (state) => {
      const one = comparison(state),
        layout = { margin: { t: 10, r: 10, l: 80, b: 50 }, legend: above(), height: 420 };
      const traces = [],
        warn = one.optimistic ? " Settings were chosen on these very runs: optimistic." : "";
      if (state.show === "profiles") {
        for (const { agent, thresholds, share, low, high } of one.profiles) {
          const { colour, dash } = agentStyle(agent);
          traces.push({
            x: [...thresholds, ...thresholds.slice().reverse()],
            y: [...high, ...low.slice().reverse()],
            fill: "toself",
            fillcolor: fade(colour, 0.2),
            line: { width: 0 },
            mode: "lines",
            hoverinfo: "skip",
            showlegend: false,
          });
          traces.push({
            x: thresholds,
            y: share,
            mode: "lines",
            line: { color: colour, dash, width: 2.5 },
            name: agent,
            hovertemplate: "%{y:.2f}",
          });
        }
        Object.assign(layout, {
          xaxis: { title: { text: "normalised score" } },
          yaxis: { title: { text: "share of runs above" }, range: [-0.02, 1.02] },
          hovermode: "x unified",
        });
      } else {
        const rows = one[state.show];
        rows.forEach(({ name, agent, estimate, low, high }) => {
          const { colour } = agentStyle(agent);
          traces.push({
            x: [estimate],
            y: [name],
            mode: "markers",
            marker: { color: colour, size: 11 },
            showlegend: false,
            name,
            error_x: {
              type: "data",
              symmetric: false,
              array: [high - estimate],
              arrayminus: [estimate - low],
              color: colour,
              thickness: 3,
              width: 6,
            },
            hovertemplate: `${shown(estimate)} [${shown(low)}, ${shown(high)}]<extra></extra>`,
          });
        });
        const probability = state.show === "improvement";
        Object.assign(layout, {
          xaxis: {
            title: { text: probability ? "probability of improvement" : "interquartile mean of score" },
            ...(probability ? { range: [-0.03, 1.03] } : {}),
          },
          yaxis: { autorange: "reversed", type: "category" },
          height: 130 + 60 * rows.length,
        });
        if (probability)
          layout.shapes = [
            {
              type: "line",
              x0: 0.5,
              x1: 0.5,
              yref: "paper",
              y0: 0,
              y1: 1,
              line: { color: css("--faint"), dash: "dash", width: 1 },
            },
          ];
      }
      return {
        traces,
        layout,
        caption: `${one.title}; ${one.runs}. 95 % stratified bootstrap intervals, seeds resampled for all agents alike.${one.few}${warn}`,
      };
    },
  );

  const redraw = () => redraws.forEach((one) => one());
  darkness.addEventListener("change", redraw);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) {
      width = innerWidth;
      redraw();
    }
  });
  document.documentElement.dataset.ready = "true";
})().catch((error) => {
  const home = document.getElementById("problem");
  home.textContent = `The figures can't be shown (${error.message}). They are in the folder figures.`;
  home.hidden = false;
  throw error;
});
