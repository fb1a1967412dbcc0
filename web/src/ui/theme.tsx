/** Light, dark, or as the system says. */
import { signal } from "@preact/signals";

const THEMES = ["system", "light", "dark"] as const;
type Theme = (typeof THEMES)[number];

const stored = localStorage.getItem("theme");
export const theme = signal<Theme>(THEMES.find((each) => each === stored) ?? "system");
apply();

function apply(): void {
  if (theme.value === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme.value;
}

export function ThemeSwitch() {
  return (
    <label>
      <span class="hidden-text">Theme</span>
      <select
        value={theme.value}
        onChange={(event) => {
          theme.value = event.currentTarget.value as Theme;
          localStorage.setItem("theme", theme.value);
          apply();
        }}
      >
        {THEMES.map((each) => (
          <option key={each} value={each}>
            {each}
          </option>
        ))}
      </select>
    </label>
  );
}
