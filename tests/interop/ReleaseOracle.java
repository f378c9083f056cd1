import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;

import com.fasterxml.jackson.databind.ObjectMapper;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.FeatureVersion;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * The tables of a release of Kafka as one JSON object: file name to rows, as `metadata_log.serde.declare` reads them. The
 * only line of standard input is the path of a formatted node's properties: both roles run, and their MBeans are the table of metrics.
 */
public class ReleaseOracle {
    public static void main(String[] args) throws Exception {
        String properties = new String(System.in.readAllBytes()).trim();
        Map<String, Object> tables = new TreeMap<>();
        tables.put("apis.json", apis());
        tables.put("errors.json", errors());
        tables.put("metadata_versions.json", levels());
        tables.put("features.json", features());
        tables.put("record_types.json", recordTypes());
        tables.put("control_record_types.json", controlTypes());
        tables.put("settings.json", settings());
        KafkaRaftServer node = new KafkaRaftServer(KafkaConfig.fromProps(Utils.loadProps(properties)), Time.SYSTEM);
        node.startup();
        tables.put("metrics.json", metrics());
        new ObjectMapper().writeValue(System.out, tables);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> row(Object... pairs) {
        Map<String, Object> found = new LinkedHashMap<>();
        for (int at = 0; at < pairs.length; at += 2) {
            found.put((String) pairs[at], pairs[at + 1]);
        }
        return found;
    }

    private static List<Object> apis() {
        List<Object> rows = new ArrayList<>();
        for (ApiKeys key : ApiKeys.values()) {
            Map<String, Integer> requests = new LinkedHashMap<>();
            Map<String, Integer> responses = new LinkedHashMap<>();
            if (key.hasValidVersion()) {
                for (short version : key.allVersions()) {
                    requests.put("" + version, (int) key.requestHeaderVersion(version));
                    responses.put("" + version, (int) key.responseHeaderVersion(version));
                }
            }
            List<String> listeners = new ArrayList<>();
            key.messageType.listeners().forEach(one -> listeners.add(one.name().toLowerCase(Locale.ROOT)));
            listeners.sort(null);
            rows.add(row("api_key", key.id, "cluster_action", key.clusterAction, "enum", key.name(), "forwardable", key.forwardable,
                "latest", key.latestVersion(true), "latest_stable", key.latestVersion(false),
                "latest_unstable", key.latestVersion(true) != key.latestVersion(false), "listeners", listeners, "name", key.messageType.name,
                "oldest", key.oldestVersion(), "request_header_versions", requests, "response_header_versions", responses));
        }
        return rows;
    }

    private static List<Object> errors() {
        List<Object> rows = new ArrayList<>();
        for (Errors error : Errors.values()) {
            rows.add(row("code", error.code(), "exception", error.exception() == null ? null : error.exception().getClass().getSimpleName(),
                "name", error.name(), "retriable", error.exception() instanceof org.apache.kafka.common.errors.RetriableException,
                "message", error == Errors.NONE ? null : error.message()));
        }
        return rows;
    }

    private static List<Object> levels() {
        List<Object> rows = new ArrayList<>();
        for (MetadataVersion one : MetadataVersion.VERSIONS) {
            rows.add(row("did_metadata_change", one.didMetadataChange(), "fetch_request_version", one.fetchRequestVersion(),
                "level", one.featureLevel(), "list_offsets_request_version", one.listOffsetRequestVersion(), "partition_change_record_version", one.partitionChangeRecordVersion(),
                "partition_record_version", one.partitionRecordVersion(), "production", one.isProduction(),
                "register_broker_record_version", one.registerBrokerRecordVersion(), "register_controller_record_version",
                one.isControllerRegistrationSupported() ? one.registerControllerRecordVersion() : -1, "version", one.version()));
        }
        return rows;
    }

    private static List<Object> features() {
        List<Object> rows = new ArrayList<>();
        for (Feature feature : Feature.PRODUCTION_FEATURES) {
            List<Object> levels = new ArrayList<>();
            for (FeatureVersion one : feature.featureVersions()) {
                levels.add(row("bootstrap_metadata_version", one.bootstrapMetadataVersion().version(), "dependencies",
                    new TreeMap<>(one.dependencies()), "level", one.featureLevel()));
            }
            rows.add(row("feature", feature.featureName(), "latest_production", feature.latestProduction(),
                "latest_testing", feature.latestTesting(), "levels", levels));
        }
        return rows;
    }

    private static List<Object> recordTypes() {
        List<Object> rows = new ArrayList<>();
        for (MetadataRecordType one : MetadataRecordType.values()) {
            rows.add(row("api_key", one.id(), "highest", one.highestSupportedVersion(), "lowest", one.lowestSupportedVersion(),
                "name", one.newMetadataRecord().getClass().getSimpleName()));
        }
        return rows;
    }

    /** The class moved between releases. */
    private static List<Object> controlTypes() throws Exception {
        Class<?> types;
        try {
            types = Class.forName("org.apache.kafka.common.record.internal.ControlRecordType");
        } catch (ClassNotFoundException older) {
            types = Class.forName("org.apache.kafka.common.record.ControlRecordType");
        }
        List<Object> rows = new ArrayList<>();
        for (Object one : types.getEnumConstants()) {
            short type = (short) types.getMethod("type").invoke(one);
            if (type >= 0) {
                ByteBuffer key = (ByteBuffer) types.getMethod("recordKey").invoke(one);
                rows.add(row("key_hex", String.format("%0" + key.remaining() * 2 + "x", new java.math.BigInteger(1, Utils.toArray(key))),
                    "name", ((Enum<?>) one).name(), "type", type));
            }
        }
        return rows;
    }

    private static List<Object> settings() {
        List<Object> rows = new ArrayList<>();
        add(rows, "broker", AbstractKafkaConfig.CONFIG_DEF, DynamicBrokerConfig.dynamicConfigUpdateModes());
        add(rows, "topic", LogConfig.configDefCopy(), Map.of());
        add(rows, "group", GroupConfig.CONFIG_DEF, Map.of());
        add(rows, "client-metrics", ClientMetricsConfigs.configDef(), Map.of());
        add(rows, "quota", QuotaConfig.userAndClientQuotaConfigs(), Map.of());
        add(rows, "ip-quota", QuotaConfig.ipConfigs(), Map.of());
        add(rows, "broker-quota", QuotaConfig.brokerQuotaConfigs(), Map.of());
        add(rows, "producer", ProducerConfig.configDef(), Map.of());
        add(rows, "consumer", ConsumerConfig.configDef(), Map.of());
        add(rows, "admin", AdminClientConfig.configDef(), Map.of());
        return rows;
    }

    private static void add(List<Object> rows, String kind, ConfigDef definition, Map<String, String> modes) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definition.configKeys()).values()) {
            Object value = !key.hasDefault() ? "required" : key.defaultValue == null ? null : ConfigDef.convertToString(key.defaultValue, key.type);
            String limits = key.validator == null ? null : String.valueOf(key.validator);
            // A lambda has another name in each run.
            rows.add(row("setting", kind + " " + key.name, "type", key.type.name(), "default", value, "allowed",
                limits == null || limits.contains("$$Lambda") ? null : limits, "changes", modes.getOrDefault(key.name, "read-only"),
                "internal", key.internalConfig));
        }
    }

    /** The names of MBeans with the keys of their tags; of requests, also which; and the attributes of MBeans without a name. */
    private static List<Object> metrics() throws Exception {
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        TreeSet<String> found = new TreeSet<>();
        for (ObjectName bean : server.queryNames(new ObjectName("kafka.*:*"), null)) {
            Map<String, String> tags = new TreeMap<>(bean.getKeyPropertyList());
            String type = tags.remove("type");
            String name = tags.remove("name");
            if (type == null || type.equals("app-info") || tags.containsKey("version") || tags.containsKey("error")) {
                continue;
            }
            String request = type.equals("RequestMetrics") ? "=" + tags.get("request") : "";
            String at = bean.getDomain() + ":type=" + type + (name == null ? "" : ",name=" + name)
                + (tags.isEmpty() ? "" : " by " + String.join(",", tags.keySet())) + request;
            if (name != null) {
                found.add(at);
                continue;
            }
            for (MBeanAttributeInfo attribute : server.getMBeanInfo(bean).getAttributes()) {
                found.add(at + " " + attribute.getName());
            }
        }
        found.addAll(named());
        List<Object> rows = new ArrayList<>();
        found.forEach(one -> rows.add(row("metric", one)));
        rows.sort(Comparator.comparing(Object::toString));
        return rows;
    }

    /** The texts that classes of metrics hold as constants: a metric that is made on its first use has no MBean before. */
    private static TreeSet<String> named() throws Exception {
        TreeSet<String> found = new TreeSet<>();
        for (String path : System.getProperty("java.class.path").split(java.io.File.pathSeparator)) {
            if (!path.matches(".*/kafka[-_][^/]*\\.jar")) {
                continue;
            }
            try (java.util.zip.ZipFile jar = new java.util.zip.ZipFile(path)) {
                for (java.util.zip.ZipEntry entry : java.util.Collections.list(jar.entries())) {
                    String name = entry.getName();
                    if (name.matches("(org/apache/)?kafka/(?!clients|connect|streams).*Metrics\\.class")) {
                        constants(Class.forName(name.replace('/', '.').replace(".class", ""), false, ReleaseOracle.class.getClassLoader()), found);
                    }
                }
            }
        }
        return found;
    }

    private static void constants(Class<?> of, TreeSet<String> found) {
        for (java.lang.reflect.Field field : of.getDeclaredFields()) {
            int modifiers = field.getModifiers();
            boolean isName = !field.getName().matches(".*(_TAG|_DOC|_DESCRIPTION|GROUP|_PREFIX|_SUFFIX)");
            if (field.getType() == String.class && java.lang.reflect.Modifier.isStatic(modifiers) && isName) {
                try {
                    field.setAccessible(true);
                    found.add(of.getSimpleName() + ": " + field.get(null));
                } catch (Throwable broken) {
                    found.add(of.getSimpleName() + ": " + field.getName());
                }
            }
        }
    }
}
