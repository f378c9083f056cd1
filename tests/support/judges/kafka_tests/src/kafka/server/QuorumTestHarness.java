package kafka.server;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.stream.Stream;

import kafka.utils.Logging;
import kafka.utils.TestInfoUtils;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.KafkaClusterTestKit;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.storage.Formatter;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.common.TransactionVersion;
import org.apache.kafka.server.fault.MockFaultHandler;
import org.apache.kafka.test.TestUtils;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.params.provider.Arguments;
import scala.Option;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Stands in for Kafka's class of the same name: the controller and the brokers of a test are `kraft serve` processes.
 *
 * The controller's directory is formatted by Kafka's own Formatter, as a test asks it to be.
 */
@Tag("integration")
public abstract class QuorumTestHarness implements Logging {
    private final MockFaultHandler faults = new MockFaultHandler("quorumTestHarnessFaultHandler");
    private final QuorumTestHarnessFaultHandlerFactory factory = new QuorumTestHarnessFaultHandlerFactory(faults);
    private String ident = "";
    private TestInfo info;
    private KafkaClusterTestKit kit;
    private ControllerServer controller;
    private QuorumImplementation implementation;

    public static Stream<Arguments> getTestGroupProtocolParametersAll() {
        return QuorumTestHarness$.MODULE$.getTestGroupProtocolParametersAll();
    }

    public static Stream<Arguments> getTestGroupProtocolParametersClassicGroupProtocolOnly() {
        return QuorumTestHarness$.MODULE$.getTestGroupProtocolParametersClassicGroupProtocolOnly();
    }

    public static Stream<Arguments> getTestGroupProtocolParametersConsumerGroupProtocolOnly() {
        return QuorumTestHarness$.MODULE$.getTestGroupProtocolParametersConsumerGroupProtocolOnly();
    }

    @BeforeAll
    public static void setUpClass() {
        QuorumTestHarness$.MODULE$.setUpClass();
    }

    @AfterAll
    public static void tearDownClass() {
        QuorumTestHarness$.MODULE$.tearDownClass();
    }

    public static void verifyNoUnexpectedThreads(String context) {
        QuorumTestHarness$.MODULE$.verifyNoUnexpectedThreads(context);
    }

    @Override
    public String logIdent() {
        return ident;
    }

    @Override
    public void logIdent_$eq(String value) {
        ident = value;
    }

    // ---- what a test says of its controller

    public SecurityProtocol controllerListenerSecurityProtocol() {
        return SecurityProtocol.PLAINTEXT;
    }

    public Seq<SecurityProtocol> extraControllerSecurityProtocols() {
        return CollectionConverters.asScala(List.<SecurityProtocol>of()).toSeq();
    }

    public Seq<Properties> kraftControllerConfigs(TestInfo testInfo) {
        return CollectionConverters.asScala(List.of(new Properties())).toSeq();
    }

    public MetadataVersion metadataVersion() {
        return MetadataVersion.latestTesting();
    }

    public void addFormatterSettings(Formatter formatter) {
    }

    public Option<GroupProtocol> maybeGroupProtocolSpecified() {
        return TestInfoUtils.maybeGroupProtocolSpecified(info);
    }

    public GroupProtocol groupProtocolFromTestParameters() {
        return maybeGroupProtocolSpecified().get();
    }

    // ---- life

    @BeforeEach
    public void setUp(TestInfo testInfo) {
        info = testInfo;
        try {
            start(kraftControllerConfigs(testInfo).head());
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
    }

    private void start(Properties properties) throws Exception {
        properties.setProperty("process.roles", "controller");
        properties.putIfAbsent("node.id", "1000");
        Path directory = TestUtils.tempDirectory().toPath();
        properties.setProperty("metadata.log.dir", directory.toString());
        List<String> listeners = new ArrayList<>(List.of("CONTROLLER"));
        List<String> protocols = new ArrayList<>(List.of("CONTROLLER:" + controllerListenerSecurityProtocol()));
        for (SecurityProtocol extra : CollectionConverters.asJava(extraControllerSecurityProtocols())) {
            listeners.add(extra.toString());
            protocols.add(extra + ":" + extra);
        }
        properties.setProperty("listener.security.protocol.map", String.join(",", protocols));
        properties.setProperty("listeners", String.join("://localhost:0,", listeners) + "://localhost:0");
        properties.setProperty("controller.listener.names", String.join(",", listeners));
        Formatter formatter = new Formatter();
        formatter.setClusterId(Uuid.randomUuid().toString());
        formatter.setNodeId(Integer.parseInt(properties.getProperty("node.id")));
        formatter.addDirectory(directory.toString());
        formatter.setReleaseVersion(metadataVersion());
        formatter.setUnstableFeatureVersionsEnabled(true);
        formatter.setControllerListenerName("CONTROLLER");
        formatter.setMetadataLogDirectory(directory.toString());
        TransactionVersion version = TestInfoUtils.isTransactionV2Enabled(info) ? TransactionVersion.TV_2 : TransactionVersion.TV_1;
        formatter.setFeatureLevel(TransactionVersion.FEATURE_NAME, version.featureLevel());
        addFormatterSettings(formatter);
        formatter.run();
        kit = KafkaClusterTestKit.ofHarness(formatter.clusterId());
        controller = kit.addController(properties);
    }

    public KafkaBroker createBroker(KafkaConfig config, Time time, boolean startup, Option<String> threadNamePrefix) {
        try {
            BrokerServer broker = kit.addBroker(config.originals());
            if (startup) {
                broker.startup();
            }
            return broker;
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
    }

    public Time createBroker$default$2() {
        return Time.SYSTEM;
    }

    public boolean createBroker$default$3() {
        return true;
    }

    public Option<String> createBroker$default$4() {
        return Option.empty();
    }

    public void shutdownKRaftController() {
        controller.shutdown();
    }

    @AfterEach
    public void tearDown() {
        try {
            if (kit != null) {
                kit.close();
            }
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
    }

    // ---- what a test asks

    public QuorumImplementation implementation() {
        return implementation;
    }

    public void implementation_$eq(QuorumImplementation value) {
        implementation = value;
    }

    public ControllerServer controllerServer() {
        return controller;
    }

    public Seq<ControllerServer> controllerServers() {
        return CollectionConverters.asScala(List.of(controller)).toSeq();
    }

    public QuorumTestHarnessFaultHandlerFactory faultHandlerFactory() {
        return factory;
    }

    public MockFaultHandler faultHandler() {
        return faults;
    }
}
