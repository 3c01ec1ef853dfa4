import csv
import sys

rows = list(csv.reader(sys.stdin))
print(len(rows), {len(row) for row in rows})
