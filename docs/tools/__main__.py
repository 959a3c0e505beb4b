from docs.tools import api, driver_calls, faults, pictures, reference, tables

for tool in (api, driver_calls, faults, pictures, reference, tables):
    for path, content in tool.pages().items():
        path.write_text(content)
