// Swagger UI over the gateway's own document. Nothing is kept: a token that is entered is gone with the page.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  validatorUrl: null, // it would tell another server what this one is
});
