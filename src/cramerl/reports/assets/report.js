"use strict";
// Sorts tables, and opens what a link leads to.

const collator = new Intl.Collator("en", { numeric: true });

// By the numbers in data-value if all cells of the column have one, by their texts otherwise.
function sortedRows(rows, column, down) {
  const missing = (row) => ["", "–"].includes(row.cells[column].textContent.trim()); // always at the end
  const numbers = rows.every((row) => missing(row) || "value" in row.cells[column].dataset);
  const key = (row) => numbers ? Number(row.cells[column].dataset.value) : row.cells[column].textContent.trim();
  const compare = (a, b) => numbers ? key(a) - key(b) : collator.compare(key(a), key(b));
  return [...rows].sort((a, b) => {
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    return down ? compare(b, a) : compare(a, b);
  });
}

// A click on a header sorts rising, the next one falling, and the third restores the original order.
function makeSortable(table) {
  const body = table.tBodies[0];
  const written = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  const next = { none: "ascending", ascending: "descending", descending: "none" };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const order = next[head.getAttribute("aria-sort")];
      heads.forEach((other) => other.setAttribute("aria-sort", other === head ? order : "none"));
      body.append(...(order === "none" ? written : sortedRows(written, column, order === "descending")));
    });
  });
}

document.querySelectorAll("table.sortable").forEach(makeSortable);

// A link to something that is folded opens it.
function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let fold = target?.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  target?.scrollIntoView();
}

addEventListener("hashchange", openTarget);
openTarget();
