from docs.tools import api, pictures, reference, tables

for tool in (api, pictures, reference, tables):
    for path, content in tool.pages().items():
        path.write_text(content)
